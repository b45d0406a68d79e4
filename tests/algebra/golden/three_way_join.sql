-- SELECT r.b, s.y, t.v FROM r JOIN s ON r.a = s.a JOIN t ON t.k = s.y WHERE t.ok

-- @: rows, key _hw_key_1, _hw_key_2, _hw_key_3, changes signed
SELECT
  `b` AS `b`,
  `y` AS `y`,
  `v` AS `v`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_key_2` AS `_hw_key_2`,
  `_hw_key_3` AS `_hw_key_3`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `b`,
    `y`,
    `v`,
    `_hw_key_1`,
    `_hw_key_2`,
    `_hw_key_3`,
    `_hw_old__hw_key_1`,
    `_hw_old__hw_key_2`,
    `_hw_old__hw_key_3`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `b`,
      `y`,
      `v`,
      `_hw_key_1`,
      `_hw_key_2`,
      `_hw_key_3`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `b` AS `b`,
        `y` AS `y`,
        `v` AS `v`,
        `r_rowid` AS `_hw_key_1`,
        `s_rowid` AS `_hw_key_2`,
        `t_rowid` AS `_hw_key_3`,
        `_hw_w`
      FROM (
        SELECT
          `b` AS `b`,
          `y` AS `y`,
          `v` AS `v`,
          `r_rowid`,
          `s_rowid`,
          `t_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `b`,
            `a_2`,
            `y`,
            `k`,
            `v`,
            `ok`,
            `r_rowid`,
            `s_rowid`,
            `t_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `b`,
              `a_2`,
              `y`,
              `k`,
              `v`,
              `ok`,
              `r_rowid`,
              `s_rowid`,
              `t_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a`,
                `b`,
                `a_2`,
                `y`,
                `r_rowid`,
                `s_rowid`,
                `_hw_w`
              FROM (
                SELECT
                  `a` AS `a`,
                  `b` AS `b`,
                  `rowid` AS `r_rowid`,
                  `_hw_w`
                FROM `r@delta`
              ) AS _l
              INNER JOIN (
                SELECT
                  `a` AS `a_2`,
                  `y` AS `y`,
                  `rowid` AS `s_rowid`
                FROM `s@old`
              ) AS _r
                ON `a` = `a_2`
            ) AS _l
            INNER JOIN (
              SELECT
                `k`,
                `v`,
                `ok`,
                `t_rowid`
              FROM (
                SELECT
                  `k` AS `k`,
                  `v` AS `v`,
                  `ok` AS `ok`,
                  `rowid` AS `t_rowid`
                FROM `t@old`
              ) AS _t
              WHERE
                `ok`
            ) AS _r
              ON `k` = `y`
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `b`,
            `a_2`,
            `y`,
            `k`,
            `v`,
            `ok`,
            `r_rowid`,
            `s_rowid`,
            `t_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a_2`,
              `y`,
              `a`,
              `b`,
              `k`,
              `v`,
              `ok`,
              `s_rowid`,
              `r_rowid`,
              `t_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a_2`,
                `y`,
                `a`,
                `b`,
                `s_rowid`,
                `r_rowid`,
                `_hw_w`
              FROM (
                SELECT
                  `a` AS `a_2`,
                  `y` AS `y`,
                  `rowid` AS `s_rowid`,
                  `_hw_w`
                FROM `s@delta`
              ) AS _l
              INNER JOIN (
                SELECT
                  `a` AS `a`,
                  `b` AS `b`,
                  `rowid` AS `r_rowid`
                FROM `r@new`
              ) AS _r
                ON `a` = `a_2`
            ) AS _l
            INNER JOIN (
              SELECT
                `k`,
                `v`,
                `ok`,
                `t_rowid`
              FROM (
                SELECT
                  `k` AS `k`,
                  `v` AS `v`,
                  `ok` AS `ok`,
                  `rowid` AS `t_rowid`
                FROM `t@old`
              ) AS _t
              WHERE
                `ok`
            ) AS _r
              ON `k` = `y`
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `b`,
            `a_2`,
            `y`,
            `k`,
            `v`,
            `ok`,
            `r_rowid`,
            `s_rowid`,
            `t_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `k`,
              `v`,
              `ok`,
              `a_2`,
              `y`,
              `a`,
              `b`,
              `t_rowid`,
              `s_rowid`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `k`,
                `v`,
                `ok`,
                `a_2`,
                `y`,
                `t_rowid`,
                `s_rowid`,
                `_hw_w`
              FROM (
                SELECT
                  `k`,
                  `v`,
                  `ok`,
                  `t_rowid`,
                  `_hw_w`
                FROM (
                  SELECT
                    `k` AS `k`,
                    `v` AS `v`,
                    `ok` AS `ok`,
                    `rowid` AS `t_rowid`,
                    `_hw_w`
                  FROM `t@delta`
                ) AS _t
                WHERE
                  `ok`
              ) AS _l
              INNER JOIN (
                SELECT
                  `a` AS `a_2`,
                  `y` AS `y`,
                  `rowid` AS `s_rowid`
                FROM `s@new`
              ) AS _r
                ON `k` = `y`
            ) AS _l
            INNER JOIN (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`
              FROM `r@new`
            ) AS _r
              ON `a` = `a_2`
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `b`,
      `y`,
      `v`,
      `_hw_key_1`,
      `_hw_key_2`,
      `_hw_key_3`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_key_2` AS `_hw_old__hw_key_2`,
      `_hw_key_3` AS `_hw_old__hw_key_3`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
    AND `_hw_key_2` IS NOT DISTINCT FROM `_hw_old__hw_key_2`
    AND `_hw_key_3` IS NOT DISTINCT FROM `_hw_old__hw_key_3`
) AS _t
