-- SELECT a, (SELECT count(*) FROM s WHERE s.a = r.a) AS n FROM r

-- @1: sums, key a_2, changes paired
SELECT
  `a_2`,
  `count`,
  `_hw_rows`,
  `_hw_old_a_2`,
  `_hw_old_count`,
  `_hw_old__hw_rows`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `a_2` AS `a_2`,
    `_hw_rows` AS `count`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_old_a_2` AS `_hw_old_a_2`,
    `_hw_old_count` AS `_hw_old_count`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      `a_2` AS `a_2`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      `_hw_old_a_2` AS `_hw_old_a_2`,
      `_hw_old_count` AS `_hw_old_count`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a_2`,
        `_hw_d__hw_rows`,
        `_hw_old_a_2`,
        `_hw_old_count`,
        `_hw_old__hw_rows`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `a_2`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`
        FROM (
          SELECT
            `a` AS `a_2`,
            `rowid` AS `s_rowid`,
            `_hw_w`
          FROM `s@delta`
        ) AS _t
        GROUP BY
          `a_2`
      ) AS _l
      LEFT JOIN (
        SELECT
          `a_2` AS `_hw_old_a_2`,
          `count` AS `_hw_old_count`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@1@old`
      ) AS _r
        ON `a_2` IS NOT DISTINCT FROM `_hw_old_a_2`
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

-- @: rows, key _hw_key_1, _hw_key_2, changes signed
SELECT
  `a` AS `a`,
  `n` AS `n`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_key_2` AS `_hw_key_2`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `n`,
    `_hw_key_1`,
    `_hw_key_2`,
    `_hw_old__hw_key_1`,
    `_hw_old__hw_key_2`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `n`,
      `_hw_key_1`,
      `_hw_key_2`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a` AS `a`,
        `n` AS `n`,
        `r_rowid` AS `_hw_key_1`,
        `a_2` AS `_hw_key_2`,
        `_hw_w`
      FROM (
        SELECT
          `a` AS `a`,
          COALESCE(`count`, 0) AS `n`,
          `r_rowid`,
          `a_2`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `a_2`,
            `count`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `a_2`,
              `count`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a`,
                `rowid` AS `r_rowid`,
                `_hw_w`
              FROM `r@delta`
            ) AS _l
            LEFT JOIN (
              SELECT
                _l.`a_2`,
                _l.`count`
              FROM (
                SELECT
                  `a_2` AS `a_2`,
                  `count` AS `count`
                FROM `@1@old`
              ) AS _l
              LEFT SEMI JOIN (
                SELECT
                  `_hw_key_0`
                FROM (
                  SELECT
                    `a` AS `_hw_key_0`,
                    `r_rowid`,
                    `_hw_w`
                  FROM (
                    SELECT
                      `a` AS `a`,
                      `rowid` AS `r_rowid`,
                      `_hw_w`
                    FROM `r@delta`
                  ) AS _t
                ) AS _t
                GROUP BY
                  `_hw_key_0`
              ) AS _r
                ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
            ) AS _r
              ON `a_2` = `a`
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `a_2`,
            `count`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `a_2`,
              `count`,
              `r_rowid`,
              CAST(1 AS INT) AS `_hw_w`
            FROM (
              SELECT
                `a`,
                `a_2`,
                `count`,
                `r_rowid`
              FROM (
                SELECT
                  _l.`a`,
                  _l.`r_rowid`
                FROM (
                  SELECT
                    `a` AS `a`,
                    `rowid` AS `r_rowid`
                  FROM `r@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `a_2` AS `_hw_key_0`,
                      `a_2`,
                      `_hw_w`
                    FROM (
                      SELECT
                        `a_2` AS `a_2`,
                        `count` AS `count`,
                        `_hw_w`
                      FROM `@1@delta`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _l
              LEFT JOIN (
                SELECT
                  _l.`a_2`,
                  _l.`count`
                FROM (
                  SELECT
                    `a_2` AS `a_2`,
                    `count` AS `count`
                  FROM `@1@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `a_2` AS `_hw_key_0`,
                      `a_2`,
                      `_hw_w`
                    FROM (
                      SELECT
                        `a_2` AS `a_2`,
                        `count` AS `count`,
                        `_hw_w`
                      FROM `@1@delta`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _r
                ON `a_2` = `a`
            ) AS _t
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `a_2`,
            `count`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `a_2`,
              `count`,
              `r_rowid`,
              CAST(-1 AS INT) AS `_hw_w`
            FROM (
              SELECT
                `a`,
                `a_2`,
                `count`,
                `r_rowid`
              FROM (
                SELECT
                  _l.`a`,
                  _l.`r_rowid`
                FROM (
                  SELECT
                    `a` AS `a`,
                    `rowid` AS `r_rowid`
                  FROM `r@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `a_2` AS `_hw_key_0`,
                      `a_2`,
                      `_hw_w`
                    FROM (
                      SELECT
                        `a_2` AS `a_2`,
                        `count` AS `count`,
                        `_hw_w`
                      FROM `@1@delta`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _l
              LEFT JOIN (
                SELECT
                  _l.`a_2`,
                  _l.`count`
                FROM (
                  SELECT
                    `a_2` AS `a_2`,
                    `count` AS `count`
                  FROM `@1@old`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `a_2` AS `_hw_key_0`,
                      `a_2`,
                      `_hw_w`
                    FROM (
                      SELECT
                        `a_2` AS `a_2`,
                        `count` AS `count`,
                        `_hw_w`
                      FROM `@1@delta`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _r
                ON `a_2` = `a`
            ) AS _t
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `n`,
      `_hw_key_1`,
      `_hw_key_2`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_key_2` AS `_hw_old__hw_key_2`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
    AND `_hw_key_2` IS NOT DISTINCT FROM `_hw_old__hw_key_2`
) AS _t
