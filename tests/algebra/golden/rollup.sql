-- SELECT a, b, count(*) AS n FROM r GROUP BY ROLLUP (a, b) HAVING count(*) > 0

-- @: sums, key a, b, _hw_key_3, changes paired
SELECT
  `a`,
  `b`,
  `n`,
  `_hw_key_3`,
  `_hw_rows`,
  `_hw_shown`,
  `_hw_old_a`,
  `_hw_old_b`,
  `_hw_old_n`,
  `_hw_old__hw_key_3`,
  `_hw_old__hw_rows`,
  `_hw_old__hw_shown`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`,
  `a_2`,
  `b_2`,
  `grouping_id`
FROM (
  SELECT
    `a_2` AS `a`,
    `b_2` AS `b`,
    `_hw_rows` AS `n`,
    `grouping_id` AS `_hw_key_3`,
    `_hw_rows` AS `_hw_rows`,
    COALESCE(`_hw_rows` > 0, FALSE) AS `_hw_shown`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old_b` AS `_hw_old_b`,
    `_hw_old_n` AS `_hw_old_n`,
    `_hw_old__hw_key_3` AS `_hw_old__hw_key_3`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_old__hw_shown` AS `_hw_old__hw_shown`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`,
    `a_2`,
    `b_2`,
    `grouping_id`
  FROM (
    SELECT
      `a_2` AS `a_2`,
      `b_2` AS `b_2`,
      `grouping_id` AS `grouping_id`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      `_hw_old_a` AS `_hw_old_a`,
      `_hw_old_b` AS `_hw_old_b`,
      `_hw_old_n` AS `_hw_old_n`,
      `_hw_old__hw_key_3` AS `_hw_old__hw_key_3`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_old__hw_shown` AS `_hw_old__hw_shown`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a_2`,
        `b_2`,
        `grouping_id`,
        `_hw_d__hw_rows`,
        `_hw_old_a`,
        `_hw_old_b`,
        `_hw_old_n`,
        `_hw_old__hw_key_3`,
        `_hw_old__hw_rows`,
        `_hw_old__hw_shown`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `a_2`,
          `b_2`,
          `grouping_id`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`
        FROM (
          SELECT
            `grouping_id` AS `grouping_id`,
            CASE WHEN `grouping_id` IN (0, 1) THEN `a` ELSE NULL END AS `a_2`,
            CASE WHEN `grouping_id` IN (0) THEN `b` ELSE NULL END AS `b_2`,
            `r_rowid`,
            `ordinal`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `b`,
              `grouping_id`,
              `r_rowid`,
              `ordinal`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`,
                `_hw_w`
              FROM `r@delta`
            ) AS _l
            CROSS JOIN (
              SELECT
                0 AS `grouping_id`,
                0 AS `ordinal`
              UNION ALL
              SELECT
                1 AS `grouping_id`,
                1 AS `ordinal`
              UNION ALL
              SELECT
                3 AS `grouping_id`,
                2 AS `ordinal`
            ) AS _r
          ) AS _t
        ) AS _t
        GROUP BY
          `a_2`,
          `b_2`,
          `grouping_id`
      ) AS _l
      LEFT JOIN (
        SELECT
          `a` AS `_hw_old_a`,
          `b` AS `_hw_old_b`,
          `n` AS `_hw_old_n`,
          `_hw_key_3` AS `_hw_old__hw_key_3`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_shown` AS `_hw_old__hw_shown`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@@old`
      ) AS _r
        ON `a_2` IS NOT DISTINCT FROM `_hw_old_a`
        AND `b_2` IS NOT DISTINCT FROM `_hw_old_b`
        AND `grouping_id` IS NOT DISTINCT FROM `_hw_old__hw_key_3`
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
    )
  )
